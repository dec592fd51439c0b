import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What both kinds of push consumers take: --group, --topic, --name-server and the settings below. */
final class PushConsumers {
    private PushConsumers() {}

    static DefaultMQPushConsumer make(Arguments arguments) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                arguments.need("group"), Accounts.hook(arguments), new AllocateMessageQueueAveragely());
        Clients.configure(consumer, arguments);
        if (arguments.has("namespace")) {
            consumer.setNamespace(arguments.need("namespace"));
        }
        // Not by the name of its class, whose package is another one in 5.x.
        consumer.setMessageModel(consumer.getMessageModel().valueOf(arguments.get("model", "CLUSTERING")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(arguments.get("begin", "CONSUME_FROM_FIRST_OFFSET")));
        if (arguments.has("timestamp")) {
            consumer.setConsumeTimestamp(arguments.need("timestamp"));
        }
        consumer.setMaxReconsumeTimes(arguments.getInt("max-reconsume-times", -1));
        consumer.setConsumeMessageBatchMaxSize(arguments.getInt("batch", 1));
        consumer.setSuspendCurrentQueueTimeMillis(arguments.getInt("suspend-ms", 1000));
        consumer.setPersistConsumerOffsetInterval(arguments.getInt("persist-ms", 500));
        consumer.setPollNameServerInterval(arguments.getInt("poll-ms", 1000));
        consumer.setHeartbeatBrokerInterval(arguments.getInt("heartbeat-ms", 1000));
        consumer.setAwaitTerminationMillisWhenShutdown(5000);
        if (arguments.has("sql")) {
            consumer.subscribe(arguments.need("topic"), MessageSelector.bySql(arguments.need("sql")));
        } else {
            consumer.subscribe(arguments.need("topic"), arguments.get("expression", "*"));
        }
        return consumer;
    }

    /** Say that the listener returned for these messages, before their offset can be committed. */
    static void handled(
            Map<String, Object> who, MessageQueue queue, List<MessageExt> messages, String status, long beginNs) {
        for (MessageExt message : messages) {
            Map<String, Object> fields = new LinkedHashMap<>(who);
            fields.putAll(Events.message(message));
            fields.put("pulledTopic", queue.getTopic());
            fields.put("pulledQueueId", queue.getQueueId());
            fields.put("status", status);
            fields.put("batch", messages.size());
            fields.put("begin_ns", beginNs);
            Events.print("handled", fields);
        }
    }

    static Map<String, Object> who(DefaultMQPushConsumer consumer) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("group", consumer.getConsumerGroup());
        fields.put("clientId", consumer.buildMQClientId());
        return fields;
    }
}

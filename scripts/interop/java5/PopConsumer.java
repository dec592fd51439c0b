import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that lets the broker share queues out, and so pops where the group's mode says so: --orderly,
 * --pop-ms invisible time, --answers by Answers.java.
 */
public final class PopConsumer {
    private PopConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, PopConsumer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer = PushConsumers.make(arguments);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(arguments.getInt("pop-ms", 60_000));
        Answers answers = new Answers(arguments, "DONE");
        if (arguments.getBoolean("orderly", false)) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                PushConsumers.handled(who(consumer, messages), context.getMessageQueue(), messages, "SUCCESS", 0);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean done = answers.next(messages.get(0)).equals("DONE");
                var status = done ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                PushConsumers.handled(who(consumer, messages), context.getMessageQueue(), messages, status.name(), 0);
                return status;
            });
        }
        consumer.start();
        return consumer::shutdown;
    }

    private static Map<String, Object> who(DefaultMQPushConsumer consumer, List<MessageExt> messages) {
        Map<String, Object> fields = PushConsumers.who(consumer);
        fields.put("popped", messages.get(0).getProperty(MessageConst.PROPERTY_POP_CK));
        return fields;
    }
}

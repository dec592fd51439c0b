import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Looks messages up by the client API: --ids (either kind), --keys, both of --topic; what is not found is told too. */
public final class QueryMessages {
    private QueryMessages() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, QueryMessages::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQProducer producer = Producers.make(arguments);
        producer.start();
        try {
            for (String id : arguments.list("ids")) {
                byId(producer, arguments.need("topic"), id);
            }
            for (String key : arguments.list("keys")) {
                byKey(producer, arguments.need("topic"), key);
            }
        } finally {
            producer.shutdown();
        }
        return null;
    }

    @SuppressWarnings("deprecation") // what 4.9.8 has
    private static void byId(DefaultMQProducer producer, String topic, String id) throws Exception {
        try {
            MessageExt message = producer.viewMessage(topic, id);
            var fields = Events.message(message);
            fields.put("asked", id);
            Events.print("viewed", fields);
        } catch (MQClientException missing) {
            Events.print("missing", "asked", id, "error", missing.getMessage());
        }
    }

    @SuppressWarnings("deprecation")
    private static void byKey(DefaultMQProducer producer, String topic, String key) throws Exception {
        try {
            QueryResult result = producer.queryMessage(topic, key, 32, 0, System.currentTimeMillis() + 60_000);
            for (MessageExt message : result.getMessageList()) {
                var fields = Events.message(message);
                fields.put("asked", key);
                Events.print("queried", fields);
            }
        } catch (MQClientException missing) {
            Events.print("missing", "asked", key, "error", missing.getMessage());
        }
    }
}

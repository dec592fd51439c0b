import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** What producers take: --name-server, --topic, --producer-group, --namespace, --body-bytes, --tags, --delay-level. */
final class Producers {
    /** A first send loads half of the client's classes; where much else runs that alone may take RocketMQ's 3 s. */
    private static final int SEND_TIMEOUT_MS = 30_000;

    private static final int TRIES = 3;

    private Producers() {}

    static DefaultMQProducer configure(DefaultMQProducer producer, Arguments arguments) {
        Clients.configure(producer, arguments);
        if (arguments.has("namespace")) {
            producer.setNamespace(arguments.need("namespace"));
        }
        producer.setDefaultTopicQueueNums(arguments.getInt("queues", 4));
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        return producer;
    }

    static DefaultMQProducer make(Arguments arguments) {
        boolean trace = arguments.getBoolean("message-trace", false);
        String group = arguments.get("producer-group", "interop-producers");
        return configure(new DefaultMQProducer(group, Accounts.hook(arguments), trace, null), arguments);
    }

    /** Sends, and again without a route: threads of a client that ask for one wait 3 s for each other, no longer. */
    static <T> T send(Callable<T> send) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                return send.call();
            } catch (MQClientException failed) {
                if (tries == TRIES || !String.valueOf(failed.getMessage()).contains("No route info")) {
                    throw failed;
                }
            }
        }
    }

    /** Message number {@code seq}: its body is the number, filled up to --body-bytes with text that compresses. */
    static Message message(Arguments arguments, long seq, String key) {
        StringBuilder body = new StringBuilder(Long.toString(seq));
        while (body.length() < arguments.getInt("body-bytes", 0)) {
            body.append(" in order");
        }
        Message message = new Message(arguments.need("topic"), body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("seq", Long.toString(seq));
        if (key != null) {
            message.putUserProperty(Events.SHARDING_KEY, key);
            message.setKeys(key);
        }
        if (arguments.has("tags")) {
            var tags = arguments.list("tags");
            message.setTags(tags.get((int) (seq % tags.size())));
        }
        if (arguments.has("delay-level")) {
            message.setDelayTimeLevel(arguments.getInt("delay-level", 0));
        }
        return message;
    }
}

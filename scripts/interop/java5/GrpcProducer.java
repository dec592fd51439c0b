import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/**
 * A producer through a proxy: --messages of them, --keys in turn as message groups (0: none), --first number,
 * --pause-ms after each; --delay-ms until they are delivered, of which --recall takes the first one back.
 */
public final class GrpcProducer {
    private GrpcProducer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, GrpcProducer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        String topic = arguments.need("topic");
        int first = arguments.getInt("first", 0);
        try (Producer producer = Grpc.PROVIDER
                .newProducerBuilder()
                .setClientConfiguration(Grpc.configuration(arguments))
                .setTopics(topic)
                .build()) {
            for (int seq = first; seq < first + arguments.getInt("messages", 1); seq++) {
                SendReceipt receipt = producer.send(message(arguments, topic, seq));
                Events.print("sent", "topic", topic, "seq", seq, "key", key(arguments, seq), "msgId", receipt.getMessageId());
                if (seq == first && arguments.getBoolean("recall", false)) {
                    RecallReceipt recalled = producer.recallMessage(topic, receipt.getRecallHandle());
                    Events.print("recalled", "seq", seq, "msgId", recalled.getMessageId());
                }
                Grpc.sleep(arguments.getInt("pause-ms", 0));
            }
        }
        return null;
    }

    private static Message message(Arguments arguments, String topic, int seq) {
        String text = Integer.toString(seq);
        MessageBuilder builder = Grpc.PROVIDER
                .newMessageBuilder()
                .setTopic(topic)
                .setBody(text.getBytes(StandardCharsets.UTF_8))
                .addProperty("seq", text);
        String key = key(arguments, seq);
        if (key != null) {
            builder.setMessageGroup(key);
        }
        if (arguments.has("delay-ms")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + arguments.getInt("delay-ms", 0));
        }
        return builder.build();
    }

    private static String key(Arguments arguments, int seq) {
        int keys = arguments.getInt("keys", 0);
        return keys == 0 ? null : "key-" + seq % keys;
    }
}

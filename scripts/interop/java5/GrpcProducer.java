import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * A producer of gRPC: --messages of them, --keys in turn as message groups (0: none), --first number; --delay-ms
 * until they are delivered, of which --recall takes the first one back. With --transactions each is sent in one: by its
 * number modulo 3 it is committed (0), rolled back (1), or left to the broker's question, which is answered with a
 * commit until stdin ends (2).
 */
public final class GrpcProducer {
    private GrpcProducer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, GrpcProducer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        String topic = arguments.need("topic");
        int first = arguments.getInt("first", 0);
        boolean transactions = arguments.getBoolean("transactions", false);
        ProducerBuilder builder = Grpc.PROVIDER
                .newProducerBuilder()
                .setClientConfiguration(Grpc.configuration(arguments))
                .setTopics(topic);
        if (transactions) {
            builder.setTransactionChecker(GrpcProducer::answer);
        }
        Producer producer = builder.build();
        for (int seq = first; seq < first + arguments.getInt("messages", 1); seq++) {
            Transaction transaction = transactions ? producer.beginTransaction() : null;
            Message message = message(arguments, topic, seq);
            SendReceipt receipt = transactions ? producer.send(message, transaction) : producer.send(message);
            Events.print("sent", "topic", topic, "seq", seq, "key", key(arguments, seq), "msgId", receipt.getMessageId());
            if (transactions) {
                decide(transaction, seq);
            }
            if (seq == first && arguments.getBoolean("recall", false)) {
                RecallReceipt recalled = producer.recallMessage(topic, receipt.getRecallHandle());
                Events.print("recalled", "seq", seq, "msgId", recalled.getMessageId());
            }
        }
        if (transactions) {
            return producer::close;
        }
        producer.close();
        return null;
    }

    private static void decide(Transaction transaction, int seq) throws Exception {
        if (seq % 3 == 0) {
            transaction.commit();
        } else if (seq % 3 == 1) {
            transaction.rollback();
        }
    }

    private static TransactionResolution answer(MessageView message) {
        Events.print("asked", "seq", Integer.valueOf(message.getProperties().get("seq")));
        return TransactionResolution.COMMIT;
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

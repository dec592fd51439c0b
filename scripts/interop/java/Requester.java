import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Messages that are asked for an answer, one after the other: --messages of them, each given --timeout-ms. */
public final class Requester {
    private Requester() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, Requester::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQProducer producer = Producers.make(arguments);
        producer.start();
        try {
            for (long seq = 0; seq < arguments.getInt("messages", 4); seq++) {
                ask(producer, Producers.message(arguments, seq, "key-" + seq), seq, arguments.getInt("timeout-ms", 10_000));
            }
        } finally {
            producer.shutdown();
        }
        return null;
    }

    private static void ask(DefaultMQProducer producer, Message message, long seq, int timeoutMs) throws Exception {
        try {
            Message answer = Producers.send(() -> producer.request(message, timeoutMs));
            Events.print("answered", "seq", seq, "body", new String(answer.getBody(), "UTF-8"));
        } catch (RequestTimeoutException nobody) {
            Events.print("unanswered", "seq", seq);
        }
    }
}

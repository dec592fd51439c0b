import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * An ordered producer: --messages of them, keys in turn (--keys of them, or those of --key-list), the queue by the
 * key's hash; --first number, --pause-ms after each.
 */
public final class OrderedProducer {
    private OrderedProducer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, OrderedProducer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        boolean inMessage = !arguments.has("key-list"); // a lone surrogate has no UTF-8
        List<String> keys = inMessage ? numbered(arguments.getInt("keys", 1)) : arguments.list("key-list");
        DefaultMQProducer producer = Producers.make(arguments);
        producer.start();
        try {
            SelectMessageQueueByHash byHash = new SelectMessageQueueByHash();
            int first = arguments.getInt("first", 0);
            for (long seq = first; seq < first + arguments.getInt("messages", keys.size()); seq++) {
                String key = keys.get((int) (seq % keys.size()));
                Message message = Producers.message(arguments, seq, inMessage ? key : null);
                SendResult result = Producers.send(() -> producer.send(message, byHash, key));
                Events.sent(message, result, "key", key);
                Thread.sleep(arguments.getInt("pause-ms", 0));
            }
        } finally {
            producer.shutdown();
        }
        return null;
    }

    private static List<String> numbered(int count) {
        List<String> keys = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            keys.add("key-" + i);
        }
        return keys;
    }
}

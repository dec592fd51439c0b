import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * The client for measurements. It stays for all of them, so that its code is compiled, and takes a command a line:
 * {@code send NAME_SERVER TOPIC THREADS SECONDS} and {@code drain NAME_SERVER TOPIC GROUP BATCH MESSAGES}.
 */
public final class BenchClient {
    private static final int KEYS = 64;
    private static final int BODY_BYTES = 128;
    private static final int SEND_TIMEOUT_MS = 30_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    private BenchClient() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, arguments -> {
            BenchClient client = new BenchClient();
            var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            Events.print("started");
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                client.obey(line.split(" "));
            }
            client.producers.values().forEach(DefaultMQProducer::shutdown);
            return null;
        });
    }

    private void obey(String[] words) throws Exception {
        if (words[0].equals("send")) {
            send(producer(words[1]), words[2], Integer.parseInt(words[3]), Double.parseDouble(words[4]));
        } else {
            drain(words[1], words[2], words[3], Integer.parseInt(words[4]), Long.parseLong(words[5]));
        }
    }

    private DefaultMQProducer producer(String nameServer) throws Exception {
        DefaultMQProducer producer = producers.get(nameServer);
        if (producer == null) {
            producer = new DefaultMQProducer("BenchProducer");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("producer@" + nameServer);
            producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
            producer.start();
            producers.put(nameServer, producer);
        }
        return producer;
    }

    /** Each thread has keys of its own, and sends the next message when the last one is answered. */
    private static void send(DefaultMQProducer producer, String topic, int threads, double seconds) throws Exception {
        var pool = Executors.newFixedThreadPool(threads);
        List<Future<Long>> counts = new ArrayList<>();
        long beginNs = System.nanoTime();
        long endNs = beginNs + (long) (seconds * 1e9);
        for (int i = 0; i < threads; i++) {
            int first = i;
            counts.add(pool.submit(() -> {
                SelectMessageQueueByHash byHash = new SelectMessageQueueByHash();
                long sent = 0;
                for (int key = first; System.nanoTime() < endNs; key = key + threads < KEYS ? key + threads : first) {
                    producer.send(new Message(topic, new byte[BODY_BYTES]), byHash, "key-" + key);
                    sent++;
                }
                return sent;
            }));
        }
        long messages = 0;
        for (Future<Long> count : counts) {
            messages += count.get();
        }
        Events.print("measured", "messages", messages, "took_ns", System.nanoTime() - beginNs);
        pool.shutdown();
    }

    /** From the first call of the listener to the last. Settings are the defaults but for the batch. */
    private static void drain(String nameServer, String topic, String group, int batch, long messages)
            throws Exception {
        var handled = new AtomicLong();
        var times = new long[2];
        var done = new CountDownLatch(1);
        var consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group + "@" + nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (found, context) -> {
            long before = handled.getAndAdd(found.size());
            if (before == 0) {
                times[0] = System.nanoTime();
            }
            if (before < messages && before + found.size() >= messages) {
                times[1] = System.nanoTime();
                done.countDown();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        done.await();
        Events.print("measured", "messages", messages, "took_ns", times[1] - times[0]);
        consumer.shutdown();
        Events.print("ended");
    }
}

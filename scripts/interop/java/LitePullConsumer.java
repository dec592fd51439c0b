import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A poll-style consumer: --mode subscribe or assign; polls --messages of them and commits. With assign it seeks back to
 * --seek of the first queue and reads that again.
 */
public final class LitePullConsumer {
    private static final long POLLED_S = 120; // of a busy machine

    private LitePullConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, LitePullConsumer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments.need("group"));
        Clients.configure(consumer, arguments);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(arguments.getBoolean("auto-commit", false));
        consumer.setAutoCommitIntervalMillis(1000);
        boolean assign = arguments.get("mode", "subscribe").equals("assign");
        if (!assign) {
            consumer.subscribe(arguments.need("topic"), arguments.get("expression", "*"));
        }
        consumer.start();
        try {
            if (assign) {
                assigned(consumer, arguments);
            } else {
                poll(consumer, "handled", arguments.getInt("messages", 1));
                consumer.commitSync();
                committed(consumer, consumer.assignment());
            }
        } finally {
            consumer.shutdown();
        }
        return null;
    }

    private static void assigned(DefaultLitePullConsumer consumer, Arguments arguments) throws Exception {
        var found = consumer.fetchMessageQueues(arguments.need("topic"));
        List<MessageQueue> queues = new ArrayList<>(new TreeSet<>(found));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        poll(consumer, "handled", arguments.getInt("messages", 1));
        consumer.commit(new TreeSet<>(queues), true);
        committed(consumer, queues);
        MessageQueue first = queues.get(0);
        consumer.assign(List.of(first));
        long back = arguments.getInt("seek", 0);
        consumer.seek(first, back);
        poll(consumer, "again", (int) (consumer.committed(first) - back));
        Events.print("time", "queueId", first.getQueueId(), "offset", consumer.offsetForTimestamp(first, 0L));
    }

    /**
     * Polls until {@code count} different messages were seen. A seek that meets a pull under way hands some of them out
     * twice: Java's client then reads the queue again, and the answer of the earlier pull arrives too.
     */
    private static void poll(DefaultLitePullConsumer consumer, String event, int count) {
        long deadline = System.nanoTime() + POLLED_S * 1_000_000_000L;
        Set<String> seen = new HashSet<>();
        while (seen.size() < count && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(500)) {
                Events.print(event, Events.message(message));
                seen.add(message.getQueueId() + ":" + message.getQueueOffset());
            }
        }
    }

    private static void committed(DefaultLitePullConsumer consumer, Iterable<MessageQueue> queues) throws Exception {
        for (MessageQueue queue : queues) {
            Events.print("queue", "queueId", queue.getQueueId(), "committed", consumer.committed(queue));
        }
    }
}

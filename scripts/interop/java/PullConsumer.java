import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A pull consumer: reads all of --topic, commits, looks offsets up, waits for a message that is not there yet. */
public final class PullConsumer {
    private PullConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, PullConsumer::start);
    }

    @SuppressWarnings("deprecation") // 4.9.8 still ships it
    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments.need("group"));
        Clients.configure(consumer, arguments);
        consumer.start();
        try {
            read(consumer, arguments);
        } finally {
            consumer.shutdown();
        }
        return null;
    }

    @SuppressWarnings("deprecation")
    private static void read(DefaultMQPullConsumer consumer, Arguments arguments) throws Exception {
        String expression = arguments.get("expression", "*");
        var subscribed = consumer.fetchSubscribeMessageQueues(arguments.need("topic"));
        List<MessageQueue> queues = new ArrayList<>(new TreeSet<>(subscribed));
        for (MessageQueue queue : queues) {
            long before = consumer.fetchConsumeOffset(queue, true);
            long min = consumer.minOffset(queue);
            long max = consumer.maxOffset(queue);
            long next = pullAll(consumer, queue, expression, min, arguments.getInt("pull-max", 8));
            consumer.updateConsumeOffset(queue, next);
            consumer.getOffsetStore().persist(queue);
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, next, false);
            long soon = System.currentTimeMillis() + 60_000;
            Events.print("queue", "queueId", queue.getQueueId(), "min", min, "max", max, "next", next,
                    "before", before, "committed", consumer.fetchConsumeOffset(queue, true),
                    "atZero", consumer.searchOffset(queue, 0), "atEnd", consumer.searchOffset(queue, soon),
                    "earliest", consumer.earliestMsgStoreTime(queue));
        }
        MessageQueue last = queues.get(queues.size() - 1);
        PullResult beyond = consumer.pull(last, expression, consumer.maxOffset(last) + 100, 1);
        Events.print("beyond", "status", beyond.getPullStatus(), "nextBeginOffset", beyond.getNextBeginOffset());
        if (arguments.has("wait")) {
            long end = consumer.maxOffset(last); // before it is told that a message may come
            Events.print("waiting", "queueId", last.getQueueId());
            PullResult found = consumer.pullBlockIfNotFound(last, expression, end, 8);
            Events.print("waited", "status", found.getPullStatus());
            pulled(found);
        }
    }

    @SuppressWarnings("deprecation")
    private static long pullAll(
            DefaultMQPullConsumer consumer, MessageQueue queue, String expression, long from, int most)
            throws Exception {
        for (long next = from; ; ) {
            PullResult result = consumer.pull(queue, expression, next, most);
            pulled(result);
            next = result.getNextBeginOffset();
            if (result.getPullStatus() != PullStatus.FOUND && result.getPullStatus() != PullStatus.NO_MATCHED_MSG
                    || next >= result.getMaxOffset()) {
                return next;
            }
        }
    }

    private static void pulled(PullResult result) {
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                Events.print("handled", Events.message(message));
            }
        }
    }
}

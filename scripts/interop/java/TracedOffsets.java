import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * The client's own offset store, watched: a queue's ownership period begins when its first offset is asked for, after
 * the lock was granted, and ends when its offset is forgotten. A commit is told before it can leave.
 */
final class TracedOffsets implements OffsetStore {
    private final Map<MessageQueue, Integer> periods = new ConcurrentHashMap<>();
    private final Set<MessageQueue> owned = ConcurrentHashMap.newKeySet();
    private final DefaultMQPushConsumer consumer;
    private final OffsetStore store;

    TracedOffsets(DefaultMQPushConsumer consumer, OffsetStore store) {
        this.consumer = consumer;
        this.store = store;
    }

    @Override
    public void load() throws MQClientException {
        store.load();
    }

    @Override
    public long readOffset(MessageQueue queue, ReadOffsetType type) {
        boolean first = type == ReadOffsetType.READ_FROM_STORE && owned.add(queue);
        if (first) {
            periods.merge(queue, 1, Integer::sum);
            tell("acquired", queue);
        }
        long offset = store.readOffset(queue, type);
        if (first && offset >= 0) {
            tell("positioned", queue, "offset", offset);
        }
        return offset;
    }

    @Override
    public void updateOffset(MessageQueue queue, long offset, boolean increaseOnly) {
        if (!increaseOnly || offset > store.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY)) {
            tell("committed", queue, "offset", offset);
        }
        store.updateOffset(queue, offset, increaseOnly);
    }

    /** Of the interface in 5.x, where a reset calls it; 4.9.8 has no such method, and so no annotation can stand here. */
    public void updateAndFreezeOffset(MessageQueue queue, long offset) {
        updateOffset(queue, offset, false);
    }

    @Override
    public void removeOffset(MessageQueue queue) {
        store.removeOffset(queue);
        if (owned.remove(queue)) {
            tell("dropped", queue, "why", "rebalance");
        }
    }

    @Override
    public void persistAll(Set<MessageQueue> queues) {
        store.persistAll(queues);
    }

    @Override
    public void persist(MessageQueue queue) {
        store.persist(queue);
    }

    @Override
    public Map<MessageQueue, Long> cloneOffsetTable(String topic) {
        return store.cloneOffsetTable(topic);
    }

    @Override
    public void updateConsumeOffsetToBroker(MessageQueue queue, long offset, boolean oneWay)
            throws RemotingException, MQBrokerException, InterruptedException, MQClientException {
        store.updateConsumeOffsetToBroker(queue, offset, oneWay);
    }

    /** The running number of this client's latest ownership of the queue. */
    int period(MessageQueue queue) {
        return periods.getOrDefault(queue, 0);
    }

    private void tell(String event, MessageQueue queue, Object... more) {
        Map<String, Object> fields = new LinkedHashMap<>(PushConsumers.who(consumer));
        fields.putAll(Events.queue(queue));
        fields.put("period", period(queue));
        for (int i = 0; i < more.length; i += 2) {
            fields.put((String) more[i], more[i + 1]);
        }
        Events.print(event, fields);
    }
}

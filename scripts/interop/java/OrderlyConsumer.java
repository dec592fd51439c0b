import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * An ordered push consumer: --answers by Answers.java (SUSPEND is short for the long name), --auto-commit, --work-ms a
 * message.
 */
public final class OrderlyConsumer {
    private OrderlyConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, OrderlyConsumer::start);
    }

    @SuppressWarnings("deprecation") // ROLLBACK and COMMIT are for listeners that commit themselves
    static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer = PushConsumers.make(arguments);
        Answers answers = new Answers(arguments, "SUCCESS");
        boolean autoCommit = arguments.getBoolean("auto-commit", true);
        int workMs = arguments.getInt("work-ms", 0);
        var instance = MQClientManager.getInstance().getOrCreateMQClientInstance(consumer, Accounts.hook(arguments));
        TracedOffsets offsets =
                new TracedOffsets(consumer, new RemoteBrokerOffsetStore(instance, consumer.getConsumerGroup()));
        consumer.setOffsetStore(offsets);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            long beginNs = System.nanoTime();
            sleep(workMs);
            context.setAutoCommit(autoCommit);
            String answer = answer(answers, messages, context);
            Map<String, Object> who = PushConsumers.who(consumer);
            who.put("period", offsets.period(context.getMessageQueue()));
            PushConsumers.handled(who, context.getMessageQueue(), messages, answer, beginNs);
            if (answer.equals("THROW")) {
                throw new IllegalStateException("the listener was told to fail");
            }
            return answer.equals("NULL") ? null : ConsumeOrderlyStatus.valueOf(answer);
        });
        consumer.start();
        return consumer::shutdown;
    }

    private static String answer(Answers answers, List<MessageExt> messages, ConsumeOrderlyContext context) {
        String answer = answers.next(messages.get(0));
        if (answer.equals("SUSPEND")) {
            context.setSuspendCurrentQueueTimeMillis(10);
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT.name();
        }
        return answer;
    }

    private static void sleep(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}

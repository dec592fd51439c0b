import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/**
 * A concurrent push consumer: --answers by Answers.java (LATER is short for the long name), --delay-level of what comes
 * later, --ack-index.
 */
public final class ConcurrentConsumer {
    private ConcurrentConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, ConcurrentConsumer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer = PushConsumers.make(arguments);
        Answers answers = new Answers(arguments, "CONSUME_SUCCESS");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long beginNs = System.nanoTime();
            context.setDelayLevelWhenNextConsume(arguments.getInt("delay-level", 0));
            context.setAckIndex(arguments.getInt("ack-index", Integer.MAX_VALUE));
            String answer = answers.next(messages.get(0));
            if (answer.equals("LATER")) {
                answer = ConsumeConcurrentlyStatus.RECONSUME_LATER.name();
            }
            PushConsumers.handled(PushConsumers.who(consumer), context.getMessageQueue(), messages, answer, beginNs);
            if (answer.equals("THROW")) {
                throw new IllegalStateException("the listener was told to fail");
            }
            return answer.equals("NULL") ? null : ConsumeConcurrentlyStatus.valueOf(answer);
        });
        consumer.start();
        return consumer::shutdown;
    }
}

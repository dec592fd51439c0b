import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A consumer that answers each message with its body behind --prefix. */
public final class Replier {
    private Replier() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, Replier::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        DefaultMQProducer producer = Producers.make(arguments);
        producer.start();
        DefaultMQPushConsumer consumer = PushConsumers.make(arguments);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            answer(producer, messages, arguments.get("prefix", "answer to "));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return () -> {
            consumer.shutdown();
            producer.shutdown();
        };
    }

    private static void answer(DefaultMQProducer producer, List<MessageExt> messages, String prefix) {
        for (MessageExt message : messages) {
            String body = prefix + new String(message.getBody(), StandardCharsets.UTF_8);
            try {
                Message reply = MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8));
                Producers.send(() -> producer.send(reply));
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }
}

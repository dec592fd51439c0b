import java.time.Duration;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** A simple consumer of gRPC: --topic, --group, --invisible-s, work as Grpc.java has it. */
public final class GrpcSimpleConsumer {
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final int BATCH = 4;

    private GrpcSimpleConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, GrpcSimpleConsumer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        SimpleConsumer consumer = Grpc.PROVIDER
                .newSimpleConsumerBuilder()
                .setClientConfiguration(Grpc.configuration(arguments))
                .setConsumerGroup(arguments.need("group"))
                .setAwaitDuration(AWAIT)
                .setSubscriptionExpressions(Map.of(arguments.need("topic"), FilterExpression.SUB_ALL))
                .build();
        Thread receiver = new Thread(() -> receive(consumer, arguments));
        receiver.setDaemon(true);
        receiver.start();
        return consumer::close;
    }

    private static void receive(SimpleConsumer consumer, Arguments arguments) {
        Duration invisible = Duration.ofSeconds(arguments.getInt("invisible-s", 15));
        while (true) {
            try {
                for (MessageView message : consumer.receive(BATCH, invisible)) {
                    Grpc.work(arguments, message);
                    Grpc.handled(message, "SUCCESS");
                    consumer.ack(message);
                    Events.print("acked", "msgId", message.getMessageId());
                }
            } catch (IllegalStateException closed) {
                return;
            } catch (ClientException | RuntimeException error) { // the latter when the connection ends
                Events.print("failed", "error", error.toString());
                Grpc.sleep(1000);
            }
        }
    }
}

import java.util.Map;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;

/** A push consumer of gRPC: --topic, --group, work as Grpc.java has it, --fail number that is never consumed. */
public final class GrpcPushConsumer {
    private GrpcPushConsumer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, GrpcPushConsumer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        PushConsumer consumer = Grpc.PROVIDER
                .newPushConsumerBuilder()
                .setClientConfiguration(Grpc.configuration(arguments))
                .setConsumerGroup(arguments.need("group"))
                .setSubscriptionExpressions(Map.of(arguments.need("topic"), FilterExpression.SUB_ALL))
                .setMessageListener(message -> {
                    Grpc.work(arguments, message);
                    boolean fails = message.getProperties().get("seq").equals(arguments.get("fail", ""));
                    ConsumeResult result = fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                    Grpc.handled(message, result.name());
                    return result;
                })
                .build();
        return consumer::close;
    }
}

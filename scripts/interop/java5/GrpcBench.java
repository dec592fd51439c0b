import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Says how fast --count messages went, after --warm-up others: --do send, with --in-flight sends at a time that each
 * wait for their answer, and with --fifo a message group each; or --do receive, which receives --batch at a time and
 * acknowledges each.
 */
public final class GrpcBench {
    private static final int BODY_BYTES = 100; // of each message; Go's driver has the same

    private GrpcBench() {}

    /** How many messages a step of one lane was. */
    private interface Step {
        int take(int lane) throws Exception;
    }

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, GrpcBench::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        if (arguments.need("do").equals("send")) {
            send(arguments);
        } else {
            receive(arguments);
        }
        return null;
    }

    private static void send(Arguments arguments) throws Exception {
        String topic = arguments.need("topic");
        boolean fifo = arguments.getBoolean("fifo", false);
        byte[] body = new byte[BODY_BYTES];
        try (Producer producer = Grpc.PROVIDER
                .newProducerBuilder()
                .setClientConfiguration(Grpc.configuration(arguments))
                .setTopics(topic)
                .build()) {
            measure(arguments, lane -> {
                MessageBuilder builder = Grpc.PROVIDER.newMessageBuilder().setTopic(topic).setBody(body);
                if (fifo) {
                    builder.setMessageGroup("group-" + lane);
                }
                producer.send(builder.build());
                return 1;
            });
        }
    }

    private static void receive(Arguments arguments) throws Exception {
        int batch = arguments.getInt("batch", 4);
        Duration invisible = Duration.ofSeconds(arguments.getInt("invisible-s", 15));
        try (SimpleConsumer consumer = Grpc.PROVIDER
                .newSimpleConsumerBuilder()
                .setClientConfiguration(Grpc.configuration(arguments))
                .setConsumerGroup(arguments.need("group"))
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Map.of(arguments.need("topic"), FilterExpression.SUB_ALL))
                .build()) {
            measure(arguments, lane -> {
                List<MessageView> found = consumer.receive(batch, invisible);
                for (MessageView message : found) {
                    consumer.ack(message);
                }
                return found.size();
            });
        }
    }

    private static void measure(Arguments arguments, Step step) throws Exception {
        int lanes = arguments.getInt("in-flight", 1);
        until(arguments.getInt("warm-up", 0), lanes, step);
        Events.print("warm");
        long began = System.nanoTime();
        until(arguments.getInt("count", 1000), lanes, step);
        Events.print("measured", "seconds", (System.nanoTime() - began) / 1e9);
    }

    /** Returns when the count is reached: a receiver that waits for more is not waited for. */
    private static void until(int count, int lanes, Step step) throws Exception {
        AtomicInteger done = new AtomicInteger();
        CompletableFuture<Void> reached = new CompletableFuture<>();
        for (int lane = 0; lane < lanes; lane++) {
            int number = lane;
            Thread thread = new Thread(() -> {
                try {
                    while (done.get() < count) {
                        done.addAndGet(step.take(number));
                    }
                    reached.complete(null);
                } catch (Exception error) {
                    reached.completeExceptionally(error);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        reached.get();
    }
}

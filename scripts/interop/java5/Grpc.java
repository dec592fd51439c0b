import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.MessageView;

/** What clients of a proxy share: --endpoints, and what they say of a message. */
final class Grpc {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    /** Where much else runs, the client's 3 s are not enough for a first answer. */
    private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(15);

    private Grpc() {}

    static ClientConfiguration configuration(Arguments arguments) {
        return ClientConfiguration.newBuilder()
                .setEndpoints(arguments.need("endpoints"))
                .enableSsl(false)
                .setRequestTimeout(ANSWER_TIMEOUT)
                .build();
    }

    /** Say that a message was handled, before it is acknowledged. */
    static void handled(MessageView message, String status) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("msgId", message.getMessageId());
        fields.put("key", message.getMessageGroup().orElse(null));
        fields.put("tags", message.getTag().orElse(null));
        fields.put("seq", Long.valueOf(message.getProperties().get("seq")));
        fields.put("body", StandardCharsets.UTF_8.decode(message.getBody()));
        fields.put("attempt", message.getDeliveryAttempt());
        fields.put("status", status);
        Events.print("handled", fields);
    }

    /** A listener's work: --work-ms; message number --hang-at never ends, and says that it began. */
    static void work(Arguments arguments, MessageView message) {
        if (message.getProperties().get("seq").equals(arguments.get("hang-at", ""))) {
            Events.print("hangs", "seq", arguments.getInt("hang-at", 0));
            sleep(Integer.MAX_VALUE);
        }
        sleep(arguments.getInt("work-ms", 0));
    }

    static void sleep(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}

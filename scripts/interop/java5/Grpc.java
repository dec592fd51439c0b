import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * What clients of gRPC share: --endpoints, --plain true (else TLS, which is the client's default), --access-key and
 * --secret-key; and what they say of a message.
 */
final class Grpc {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    /** Where much else runs, the client's 3 s are not enough for a first answer. */
    private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(15);

    private Grpc() {}

    static ClientConfiguration configuration(Arguments arguments) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
                .setEndpoints(arguments.need("endpoints"))
                .setRequestTimeout(ANSWER_TIMEOUT);
        if (arguments.getBoolean("plain", false)) {
            builder.enableSsl(false);
        }
        if (arguments.has("access-key")) {
            builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(arguments.need("access-key"), arguments.need("secret-key")));
        }
        return builder.build();
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

    /** A listener's work: message number --hang-at never ends, and says that it began. */
    static void work(Arguments arguments, MessageView message) {
        if (message.getProperties().get("seq").equals(arguments.get("hang-at", ""))) {
            Events.print("hangs", "seq", arguments.getInt("hang-at", 0));
            sleep(Integer.MAX_VALUE);
        }
    }

    static void sleep(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}

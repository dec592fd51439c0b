import org.apache.rocketmq.client.ClientConfig;

/** What all clients take: --name-server, and a name of their own. */
final class Clients {
    /** Where much else runs, RocketMQ's 3 s are not enough for a first answer. */
    private static final int ANSWER_TIMEOUT_MS = 15_000;

    private Clients() {}

    static void configure(ClientConfig client, Arguments arguments) {
        client.setNamesrvAddr(arguments.need("name-server"));
        client.setInstanceName(arguments.instance());
        client.setMqClientApiTimeout(ANSWER_TIMEOUT_MS);
    }
}

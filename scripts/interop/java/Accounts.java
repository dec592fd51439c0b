import org.apache.rocketmq.remoting.RPCHook;

/** RocketMQ's own hook for --access-key and --secret-key; none without them. */
final class Accounts {
    private static final String PACKAGE = "org.apache.rocketmq.acl.common.";

    private Accounts() {}

    /** By name: the client 5.x does not bring the hook with it. */
    static RPCHook hook(Arguments arguments) {
        if (!arguments.has("access-key")) {
            return null;
        }
        try {
            Class<?> account = Class.forName(PACKAGE + "SessionCredentials");
            Object keys = account.getConstructor(String.class, String.class)
                    .newInstance(arguments.need("access-key"), arguments.need("secret-key"));
            return (RPCHook) Class.forName(PACKAGE + "AclClientRPCHook").getConstructor(account).newInstance(keys);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}

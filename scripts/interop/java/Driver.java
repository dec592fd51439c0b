import java.io.IOException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The frame of every driver: starts it, says how that went, closes it when stdin ends or SIGTERM comes. */
final class Driver {
    /** Starts something; what it returns stays running, null when everything is done. */
    interface Start {
        AutoCloseable with(Arguments arguments) throws Exception;
    }

    private static volatile AutoCloseable running;

    private Driver() {}

    /** Exit status 0, or 1 when the start failed. */
    static void run(String[] argv, Start start) throws IOException {
        Runtime.getRuntime().addShutdownHook(new Thread(Driver::close));
        try {
            running = start.with(new Arguments(argv));
        } catch (Exception error) {
            Events.print("failed", "error", error.toString());
            error.printStackTrace();
            System.exit(1);
        }
        String encoding = RemotingCommand.getSerializeTypeConfigInThisServer().name();
        Events.print(running == null ? "done" : "ready", "encoding", encoding);
        while (running != null && System.in.read() >= 0) {
            // whatever is typed: only the end counts
        }
        System.exit(0);
    }

    private static void close() {
        try {
            if (running != null) {
                running.close();
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Events.print("closed");
    }
}

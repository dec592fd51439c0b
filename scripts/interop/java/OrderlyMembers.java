import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Ordered push consumers of one group that join one after the other: --members so many within --within-ms. Each is an
 * OrderlyConsumer with an instance name of its own, which takes the other arguments.
 */
public final class OrderlyMembers {
    /** Numbers of three digits, which sort as text. */
    private static final int FIRST = 100;

    private OrderlyMembers() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, arguments -> start(argv, arguments.getInt("members", 1), arguments.getInt("within-ms", 0)));
    }

    private static AutoCloseable start(String[] argv, int count, int withinMs) throws Exception {
        // Twice: the first time, code is not compiled yet, here and at the broker.
        joinAll(argv, count, withinMs).close();
        Events.print("joining");
        return joinAll(argv, count, withinMs);
    }

    private static AutoCloseable joinAll(String[] argv, int count, int withinMs) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(count);
        List<Future<AutoCloseable>> members = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = FIRST + i;
            long waitMs = (long) i * withinMs / count;
            members.add(pool.submit(() -> {
                Thread.sleep(waitMs);
                AutoCloseable member = member(argv, number);
                Events.print("joined", "instance", number);
                return member;
            }));
        }
        for (Future<AutoCloseable> member : members) {
            member.get();
        }
        return () -> closeAll(pool, members);
    }

    private static AutoCloseable member(String[] argv, int number) throws Exception {
        String[] all = Arrays.copyOf(argv, argv.length + 2);
        all[argv.length] = "--instance";
        all[argv.length + 1] = Integer.toString(number);
        return OrderlyConsumer.start(new Arguments(all));
    }

    /** At once: each may wait for its listener. */
    private static void closeAll(ExecutorService pool, List<Future<AutoCloseable>> members) throws Exception {
        List<Future<Object>> ends = new ArrayList<>();
        for (Future<AutoCloseable> member : members) {
            ends.add(pool.submit(() -> {
                member.get().close();
                return null;
            }));
        }
        for (Future<Object> end : ends) {
            end.get();
        }
        pool.shutdown();
    }
}

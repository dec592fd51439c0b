import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin for many commands in one JVM: each line of stdin is the JSON list of a command's words; its output is an event. */
public final class MqAdmin {
    private MqAdmin() {}

    public static void main(String[] argv) throws IOException {
        Events.print("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = JSON.parseArray(line, String.class);
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            PrintStream usualOutput = System.out;
            PrintStream usualErrors = System.err;
            System.setOut(new PrintStream(output, true, "UTF-8"));
            System.setErr(new PrintStream(errors, true, "UTF-8"));
            long beginNs = System.nanoTime();
            try {
                MQAdminStartup.main0(words.toArray(new String[0]), null);
            } finally {
                System.setOut(usualOutput);
                System.setErr(usualErrors);
            }
            Events.print("output", "command", words.get(0), "begin_ns", beginNs, "output", output.toString("UTF-8"),
                    "errors", errors.toString("UTF-8"));
        }
        Events.print("closed");
        System.exit(0);
    }
}

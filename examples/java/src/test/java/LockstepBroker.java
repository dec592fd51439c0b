import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A broker on free ports, with more options of lockstep-broker; it ends when it is closed, or with this JVM. */
class LockstepBroker implements AutoCloseable {
    private final Process process;
    private final Map<String, String> addresses = new HashMap<>();

    LockstepBroker(String... options) throws IOException {
        List<String> command = new ArrayList<>(List.of("lockstep-broker", "--port", "0", "--name-server-port", "0",
            "--control-port", "0", "--end-with-stdin", "--log-level", "warning"));
        command.addAll(List.of(options));
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = process.inputReader().readLine();
        if (line == null) {
            throw new IOException("the broker did not start");
        }
        for (String word : line.substring("listening ".length()).split(" ")) {
            addresses.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        }
    }

    String nameServer() {
        return addresses.get("name-server");
    }

    /** For clients of RocketMQ 5, with the options `--grpc-port 0`. */
    String endpoint() {
        return addresses.get("grpc");
    }

    /** One call of the control port: control("advance", "seconds", 61); the answer is JSON. */
    String control(String call, Object... arguments) throws IOException {
        StringBuilder line = new StringBuilder("{\"call\": \"" + call + "\"");
        for (int i = 0; i < arguments.length; i += 2) {
            String quote = arguments[i + 1] instanceof String ? "\"" : "";
            line.append(", \"" + arguments[i] + "\": " + quote + arguments[i + 1] + quote);
        }
        String[] address = addresses.get("control").split(":");
        try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
            socket.getOutputStream().write((line + "}\n").getBytes(StandardCharsets.UTF_8));
            String answer = new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine();
            if (answer == null || !answer.startsWith("{\"ok\": true")) {
                throw new IOException(line + "} was answered " + answer);
            }
            return answer;
        }
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
    }
}

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** A broker on free ports; it ends when it is closed, or with this JVM. */
class LockstepBroker implements AutoCloseable {
    private final Process process;
    private final Map<String, String> addresses = new HashMap<>();

    LockstepBroker() throws IOException {
        process = new ProcessBuilder("lockstep-broker", "--port", "0", "--name-server-port", "0",
            "--control-port", "0", "--end-with-stdin", "--log-level", "warning")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
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

    /** One call of the control port, for example {"call": "advance", "seconds": 61}; the answer is JSON too. */
    String control(String call) throws IOException {
        String[] address = addresses.get("control").split(":");
        try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
            socket.getOutputStream().write((call + "\n").getBytes(StandardCharsets.UTF_8));
            String answer = new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine();
            if (answer == null || !answer.startsWith("{\"ok\": true")) {
                throw new IOException(call + " was answered " + answer);
            }
            return answer;
        }
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
    }
}

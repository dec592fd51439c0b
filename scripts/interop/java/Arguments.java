import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** {@code --name value} pairs; values of a name that is repeated are a list. */
final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(String[] argv) {
        for (int i = 0; i < argv.length; i += 2) {
            if (!argv[i].startsWith("--") || i + 1 == argv.length) {
                throw new IllegalArgumentException("expected --name value, found " + argv[i]);
            }
            values.merge(argv[i].substring(2), argv[i + 1], (before, next) -> before + "," + next);
        }
    }

    String need(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int getInt(String name, int otherwise) {
        return Integer.parseInt(values.getOrDefault(name, Integer.toString(otherwise)));
    }

    boolean getBoolean(String name, boolean otherwise) {
        return Boolean.parseBoolean(values.getOrDefault(name, Boolean.toString(otherwise)));
    }

    /** A name for a client instance that nobody else has. */
    String instance() {
        return get("instance", "driver-" + ProcessHandle.current().pid() + "-" + System.nanoTime());
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    /** A list separated by commas; a backslash, u and four hex digits are one UTF-16 unit, a lone surrogate too. */
    List<String> list(String name) {
        List<String> found = new ArrayList<>();
        for (String escaped : need(name).split(",")) {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < escaped.length(); i++) {
                if (escaped.startsWith("\\u", i)) {
                    text.append((char) Integer.parseInt(escaped.substring(i + 2, i + 6), 16));
                    i += 5;
                } else {
                    text.append(escaped.charAt(i));
                }
            }
            found.add(text.toString());
        }
        return found;
    }
}

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What happened, as JSON lines on stdout: each is written whole, and in the file before {@link #print} returns. */
final class Events {
    /** Messages carry their sharding key in a property, as those of other clients do. */
    static final String SHARDING_KEY = "__SHARDINGKEY";

    private static final int BODY_SHOWN_MAX = 64;
    private static final FileOutputStream STDOUT = new FileOutputStream(FileDescriptor.out);

    private Events() {}

    /** An event with its fields: a name, a value, the next name, and so on. */
    static void print(String event, Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        print(event, fields);
    }

    static void print(String event, Map<String, Object> fields) {
        StringBuilder line = new StringBuilder("{\"event\":");
        quote(line, event);
        fields.putIfAbsent("wall_ms", System.currentTimeMillis());
        fields.putIfAbsent("t_ns", System.nanoTime());
        fields.forEach((name, value) -> {
            line.append(',');
            quote(line, name);
            line.append(':');
            if (value == null || value instanceof Number || value instanceof Boolean) {
                line.append(value);
            } else {
                quote(line, value.toString());
            }
        });
        write(line.append("}\n").toString().getBytes(StandardCharsets.UTF_8));
    }

    static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", queue.getTopic());
        fields.put("broker", queue.getBrokerName());
        fields.put("queueId", queue.getQueueId());
        return fields;
    }

    /** A message as a consumer got it. */
    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("broker", message.getBrokerName());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("msgId", message.getMsgId());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("storeSize", message.getStoreSize());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        content(fields, message);
        return fields;
    }

    /** A message as a producer sent it; {@code result} is null when there is none, as of a one-way send. */
    static void sent(Message message, SendResult result, Object... more) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        if (result != null) {
            fields.put("status", result.getSendStatus());
            fields.put("broker", result.getMessageQueue().getBrokerName());
            fields.put("queueId", result.getMessageQueue().getQueueId());
            fields.put("queueOffset", result.getQueueOffset());
            fields.put("msgId", result.getMsgId());
            fields.put("offsetMsgId", result.getOffsetMsgId());
        }
        content(fields, message);
        for (int i = 0; i < more.length; i += 2) {
            fields.put((String) more[i], more[i + 1]);
        }
        print("sent", fields);
    }

    private static void content(Map<String, Object> fields, Message message) {
        byte[] body = message.getBody();
        CRC32 crc = new CRC32();
        crc.update(body);
        String seq = message.getUserProperty("seq");
        fields.put("key", message.getUserProperty(SHARDING_KEY));
        fields.put("keys", message.getKeys());
        fields.put("tags", message.getTags());
        fields.put("seq", seq == null ? null : Long.valueOf(seq));
        fields.put("body", body.length > BODY_SHOWN_MAX ? null : new String(body, StandardCharsets.UTF_8));
        fields.put("bodyBytes", body.length);
        fields.put("bodyCrc32", crc.getValue());
    }

    private static synchronized void write(byte[] line) {
        try {
            STDOUT.write(line);
        } catch (IOException nobodyReads) {
            Runtime.getRuntime().halt(74);
        }
    }

    private static void quote(StringBuilder line, String text) {
        line.append('"');
        for (char unit : text.toCharArray()) {
            if (unit == '"' || unit == '\\') {
                line.append('\\').append(unit);
            } else if (unit < ' ' || Character.isSurrogate(unit)) {
                line.append(String.format("\\u%04x", (int) unit));
            } else {
                line.append(unit);
            }
        }
        line.append('"');
    }
}

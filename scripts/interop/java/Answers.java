import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What a listener answers: {@code --answers 3=SUSPEND*2,5=COMMIT,7=THROW*1000} by the messages' seq and for so many
 * attempts (1), {@code --answer SUCCESS} for everything else; NULL is no answer, FIRST is LATER where no consumer of
 * the group had the message before. Attempts are counted over the consumer's whole life.
 */
final class Answers {
    private final Map<Long, String> special = new HashMap<>();
    private final Map<Long, Integer> left = new ConcurrentHashMap<>();
    private final String usual;

    Answers(Arguments arguments, String usual) {
        this.usual = arguments.get("answer", usual);
        for (String entry : arguments.get("answers", "").split(",")) {
            if (!entry.isEmpty()) {
                String[] parts = entry.split("[=*]");
                special.put(Long.valueOf(parts[0]), parts[1]);
                left.put(Long.valueOf(parts[0]), parts.length > 2 ? Integer.parseInt(parts[2]) : 1);
            }
        }
    }

    String next(MessageExt message) {
        String seq = message.getUserProperty("seq");
        Long number = seq == null ? null : Long.valueOf(seq);
        if (number == null || !special.containsKey(number)) {
            return usual;
        }
        if (special.get(number).equals("FIRST")) {
            return message.getReconsumeTimes() == 0 ? "LATER" : usual;
        }
        return left.merge(number, -1, Integer::sum) >= 0 ? special.get(number) : usual;
    }
}

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Every way to send: --kind of KINDS, --messages of them; with --stay the producer is open until the end. */
public final class SendKinds {
    private interface Kind {
        void send(DefaultMQProducer producer, List<Message> messages) throws Exception;
    }

    private static final Map<String, Kind> KINDS = Map.of(
            "sync", SendKinds::sync,
            "async", SendKinds::async,
            "one-way", SendKinds::oneWay,
            "batch", SendKinds::batch);

    private SendKinds() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, SendKinds::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (long seq = 0; seq < arguments.getInt("messages", 10); seq++) {
            messages.add(Producers.message(arguments, seq, "key-" + seq));
        }
        DefaultMQProducer producer = Producers.make(arguments);
        producer.start();
        boolean stays = false;
        try {
            KINDS.get(arguments.get("kind", "sync")).send(producer, messages);
            stays = arguments.getBoolean("stay", false);
        } finally {
            if (!stays) {
                producer.shutdown();
            }
        }
        return stays ? producer::shutdown : null;
    }

    private static void sync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        for (Message message : messages) {
            Events.sent(message, Producers.send(() -> producer.send(message)));
        }
    }

    private static void async(DefaultMQProducer producer, List<Message> messages) throws Exception {
        CountDownLatch open = new CountDownLatch(messages.size());
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    Events.sent(message, result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failure.set(error);
                    open.countDown();
                }
            });
        }
        if (!open.await(60, TimeUnit.SECONDS) || failure.get() != null) {
            throw new IllegalStateException(open.getCount() + " sends without an answer", failure.get());
        }
    }

    private static void oneWay(DefaultMQProducer producer, List<Message> messages) throws Exception {
        for (Message message : messages) {
            Producers.send(() -> {
                producer.sendOneway(message);
                return null;
            });
            Events.sent(message, null);
        }
    }

    private static void batch(DefaultMQProducer producer, List<Message> messages) throws Exception {
        SendResult result = Producers.send(() -> producer.send(messages));
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < messages.size(); i++) {
            Events.sent(messages.get(i), result, "msgId", ids[i], "offsetMsgId", offsetIds[i],
                    "queueOffset", result.getQueueOffset() + i);
        }
    }
}

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Half messages: even ones are committed, odd ones rolled back, at once; the first --unknown of them are left to a
 * check-back, which commits.
 */
public final class TransactionProducer {
    private TransactionProducer() {}

    public static void main(String[] argv) throws Exception {
        Driver.run(argv, TransactionProducer::start);
    }

    private static AutoCloseable start(Arguments arguments) throws Exception {
        String group = arguments.get("producer-group", "interop-transactions");
        TransactionMQProducer producer = new TransactionMQProducer(group);
        Producers.configure(producer, arguments);
        int unknown = arguments.getInt("unknown", 0);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                long seq = (Long) argument;
                if (seq < unknown) {
                    return LocalTransactionState.UNKNOW;
                }
                return seq % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                Events.print("checked", Events.message(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (long seq = 0; seq < arguments.getInt("messages", 4); seq++) {
            Message message = Producers.message(arguments, seq, "key-" + seq);
            Object number = seq;
            TransactionSendResult result = Producers.send(() -> producer.sendMessageInTransaction(message, number));
            Events.sent(message, result, "transaction", result.getLocalTransactionState());
        }
        return producer::shutdown;
    }
}

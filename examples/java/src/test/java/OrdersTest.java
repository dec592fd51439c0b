import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;

/** RocketMQ's own client, unchanged, with lockstep-broker, which must be on the PATH: mvn test. */
class OrdersTest {
    @Test
    void theStepsOfAnOrderComeInOrder() throws Exception {
        try (LockstepBroker broker = new LockstepBroker()) {
            broker.control("create_topic", "topic", "orders", "queues", 4);
            DefaultMQProducer producer = new DefaultMQProducer("shop");
            producer.setNamesrvAddr(broker.nameServer());
            producer.start();
            for (String step : new String[] {"created", "paid", "shipped"}) {
                producer.send(new Message("orders", step.getBytes()), new SelectMessageQueueByHash(), "1001");
            }

            BlockingQueue<String> handled = new LinkedBlockingQueue<>();
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("printer");
            consumer.setNamesrvAddr(broker.nameServer());
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe("orders", "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> handled.add(new String(message.getBody())));
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            for (String step : new String[] {"created", "paid", "shipped"}) {
                assertEquals(step, handled.poll(30, TimeUnit.SECONDS));
            }

            // A message that is to come in two hours (level 18) comes now.
            Message later = new Message("orders", "reviewed".getBytes());
            later.setDelayTimeLevel(18);
            producer.send(later, new SelectMessageQueueByHash(), "1001");
            broker.control("advance", "seconds", 7201, "heartbeats", true);
            assertEquals("reviewed", handled.poll(30, TimeUnit.SECONDS));
            consumer.shutdown();
            producer.shutdown();
        }
    }
}

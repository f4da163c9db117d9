package peer;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** subscribe, received, persist, unsubscribe: push consumers by handle. */
final class Consuming {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, Arrivals> ARRIVALS = new ConcurrentHashMap<>();

    /** What one consumer was given, in order. */
    private static final class Arrivals {
        private final List<Object[]> rows = new ArrayList<>();
        private int counted;

        synchronized void add(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                rows.add(Messages.row(message));
                if (!message.getKeys().startsWith("warm")) {
                    counted++;
                }
            }
            notifyAll();
        }

        synchronized List<Object[]> await(int count, double seconds) throws InterruptedException {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            for (long left = end - System.nanoTime(); counted < count && left > 0; left = end - System.nanoTime()) {
                wait(Math.max(1, left / 1_000_000));
            }
            return new ArrayList<>(rows);
        }
    }

    private Consuming() {
    }

    static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("subscribe", Consuming::subscribe);
        ops.put("received", Consuming::received);
        ops.put("persist", Consuming::persist);
        ops.put("unsubscribe", Consuming::unsubscribe);
        return ops;
    }

    /** The enumeration moved to another package in 5.x; its names did not. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void model(DefaultMQPushConsumer consumer, String name) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], name.toUpperCase()));
            }
        }
    }

    private static Map<String, Object> subscribe(JSONObject arguments) throws Exception {
        String handle = arguments.getString("handle");
        DefaultMQPushConsumer consumer = Patience.with(
            new DefaultMQPushConsumer(
                arguments.getString("group"), Account.hook(), Strategies.of(arguments),
                arguments.getBooleanValue("trace"), null));
        consumer.setNamesrvAddr(arguments.getString("namesrv"));
        if (arguments.containsKey("namespace")) {
            consumer.setNamespace(arguments.getString("namespace"));
        }
        consumer.setInstanceName(handle);
        consumer.setPollNameServerInterval(arguments.containsKey("poll") ? arguments.getIntValue("poll") : 1000);
        consumer.setHeartbeatBrokerInterval(1000);
        String from = arguments.containsKey("from") ? arguments.getString("from") : "FIRST_OFFSET";
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + from));
        if (arguments.containsKey("since")) {
            consumer.setConsumeTimestamp(arguments.getString("since"));
        }
        if (arguments.containsKey("maxReconsume")) {
            consumer.setMaxReconsumeTimes(arguments.getIntValue("maxReconsume"));
        }
        model(consumer, arguments.getString("model"));
        String expression = arguments.getString("expression");
        if (arguments.getBooleanValue("sql")) {
            consumer.subscribe(arguments.getString("topic"), MessageSelector.bySql(expression));
        } else {
            consumer.subscribe(arguments.getString("topic"), expression);
        }
        Arrivals arrivals = new Arrivals();
        History history = arguments.containsKey("history")
            ? new History(arguments.getString("history"), handle) : null;
        long work = arguments.getLongValue("work");
        boolean always = arguments.getBooleanValue("fail");
        int failures = arguments.getIntValue("failures");
        long suspend = arguments.getLongValue("suspend");
        if (arguments.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                if (history != null) {
                    String broker = context.getMessageQueue().getBrokerName();
                    history.note("given", broker, messages);
                    History.work(work);
                    history.note("done", broker, messages);
                    return ConsumeOrderlyStatus.SUCCESS;
                }
                arrivals.add(messages);
                boolean fail = always || messages.get(0).getReconsumeTimes() < failures;
                if (fail && suspend > 0) {
                    context.setSuspendCurrentQueueTimeMillis(suspend);
                }
                return fail ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (history != null) {
                    String broker = context.getMessageQueue().getBrokerName();
                    history.note("given", broker, messages);
                    History.work(work);
                    history.note("done", broker, messages);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
                arrivals.add(messages);
                boolean fail = always || messages.get(0).getReconsumeTimes() < failures;
                return fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        CONSUMERS.put(handle, consumer);
        ARRIVALS.put(handle, arrivals);
        return Peer.done();
    }

    private static Map<String, Object> received(JSONObject arguments) throws Exception {
        Arrivals arrivals = ARRIVALS.get(arguments.getString("handle"));
        return Peer.rows(arrivals.await(arguments.getIntValue("count"), arguments.getDoubleValue("timeout")));
    }

    private static Map<String, Object> persist(JSONObject arguments) {
        CONSUMERS.get(arguments.getString("handle")).getDefaultMQPushConsumerImpl().persistConsumerOffset();
        return Peer.done();
    }

    private static Map<String, Object> unsubscribe(JSONObject arguments) {
        CONSUMERS.remove(arguments.getString("handle")).shutdown(); // its offsets are at the broker when this returns
        ARRIVALS.remove(arguments.getString("handle"));
        return Peer.done();
    }
}

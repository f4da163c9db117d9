package peer;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** produce: one producer, every way of sending. */
final class Sending {
    private static final int BATCH = 50;
    private static final int IN_FLIGHT = 64;
    /** Asynchronous sends that go alone: of several that connect at once a 4.5.2 client closes the others' connection. */
    private static final int ALONE = 8;

    private Sending() {
    }

    static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("produce", Sending::produce);
        return ops;
    }

    private static Object[] row(Message message, SendResult result, int at) {
        String digest = Messages.digest(message.getBody());
        if (result == null) {
            return new Object[] {message.getKeys(), digest, null, null, message.getTags(), 0, null, null};
        }
        if (!"SEND_OK".equals(String.valueOf(result.getSendStatus()))) {
            throw new IllegalStateException("not SEND_OK: " + result);
        }
        String[] offsetIds = result.getOffsetMsgId().split(",");
        String[] uniqueIds = result.getMsgId().split(",");
        return new Object[] {
            message.getKeys(), digest, result.getMessageQueue().getQueueId(), result.getQueueOffset() + at,
            message.getTags(), 0, offsetIds[at], uniqueIds[at]
        };
    }

    private static Map<String, Object> produce(JSONObject arguments) throws Exception {
        DefaultMQProducer producer = Patience.with(
            new DefaultMQProducer(
                arguments.getString("group"), Account.hook(), arguments.getBooleanValue("trace"), null));
        producer.setNamesrvAddr(arguments.getString("namesrv"));
        if (arguments.containsKey("namespace")) {
            producer.setNamespace(arguments.getString("namespace"));
        }
        producer.setInstanceName("produce-" + System.nanoTime());
        producer.setSendMsgTimeout(Patience.MILLIS);
        producer.start();
        int first = arguments.getIntValue("first");
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < arguments.getIntValue("count"); i++) {
            messages.add(Messages.message(arguments, first + i));
        }
        Object[][] rows = new Object[messages.size()][];
        try {
            switch (arguments.getString("mode")) {
                case "sync":
                    for (int i = 0; i < rows.length; i++) {
                        // The row's digest is taken first: a producer may replace the body by its compressed form.
                        byte[] body = messages.get(i).getBody();
                        SendResult result = producer.send(messages.get(i));
                        messages.get(i).setBody(body);
                        rows[i] = row(messages.get(i), result, 0);
                    }
                    break;
                case "async":
                    async(producer, messages, rows);
                    break;
                case "oneway":
                    for (int i = 0; i < rows.length; i++) {
                        rows[i] = row(messages.get(i), null, 0);
                        producer.sendOneway(messages.get(i));
                    }
                    break;
                case "batch":
                    for (int i = 0; i < rows.length; i += BATCH) {
                        List<Message> batch = messages.subList(i, Math.min(i + BATCH, rows.length));
                        SendResult result = producer.send(batch);
                        for (int at = 0; at < batch.size(); at++) {
                            rows[i + at] = row(batch.get(at), result, at);
                        }
                    }
                    break;
                case "ordered":
                    MessageQueueSelector byOrder = (queues, message, order) -> queues.get((Integer) order % queues.size());
                    for (int i = 0; i < rows.length; i++) {
                        byte[] body = messages.get(i).getBody();
                        SendResult result = producer.send(messages.get(i), byOrder, (first + i) % 10);
                        messages.get(i).setBody(body);
                        rows[i] = row(messages.get(i), result, 0);
                    }
                    break;
                default:
                    throw new IllegalArgumentException("the client has no such call: " + arguments.getString("mode"));
            }
        } finally {
            // A one-way send has only been queued for the socket when it returns.
            Closing.after(arguments.getString("mode").equals("oneway") ? 20 : 3, producer::shutdown);
        }
        return Peer.rows(Arrays.asList(rows));
    }

    private static void async(DefaultMQProducer producer, List<Message> messages, Object[][] rows) throws Exception {
        Semaphore free = new Semaphore(IN_FLIGHT);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < rows.length; i++) {
            int at = i;
            Message message = messages.get(i);
            Message original = new Message(message.getTopic(), message.getTags(), message.getKeys(), message.getBody());
            int permits = i < ALONE ? IN_FLIGHT : 1;
            free.acquire(permits);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    try {
                        rows[at] = row(original, result, 0);
                    } catch (RuntimeException error) {
                        failure.set(error);
                    }
                    free.release(permits);
                }

                @Override
                public void onException(Throwable error) {
                    failure.set(error);
                    free.release(permits);
                }
            });
        }
        if (!free.tryAcquire(IN_FLIGHT, 2 * Patience.MILLIS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("some sends were never answered");
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }
}

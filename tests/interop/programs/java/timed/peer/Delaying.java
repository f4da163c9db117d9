package peer;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** delayed, recall: messages that wait, by level or by a time of their own. */
public final class Delaying {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();

    private Delaying() {
    }

    public static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("delayed", Delaying::delayed);
        ops.put("recall", Delaying::recall);
        return ops;
    }

    private static DefaultMQProducer producer(JSONObject arguments) {
        return PRODUCERS.computeIfAbsent(arguments.getString("namesrv"), namesrv -> {
            DefaultMQProducer producer = Patience.with(new DefaultMQProducer("delaying"));
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("delaying-" + System.nanoTime());
            producer.setSendMsgTimeout(Patience.MILLIS);
            try {
                producer.start();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            return producer;
        });
    }

    /** Level, properties, and what only newer clients have a setter for. */
    static void prepare(Message message, JSONObject arguments) throws Exception {
        if (arguments.containsKey("level")) {
            message.setDelayTimeLevel(arguments.getIntValue("level"));
        }
        JSONObject properties = arguments.getJSONObject("properties");
        if (properties != null) {
            for (String name : properties.keySet()) {
                MessageAccessor.putProperty(message, name, properties.getString(name));
            }
        }
        if (arguments.containsKey("setter")) {
            Message.class.getMethod(arguments.getString("setter"), long.class)
                .invoke(message, arguments.getLongValue("value"));
        }
    }

    static Map<String, Object> told(SendResult result) throws Exception {
        Map<String, Object> answer = Peer.done();
        answer.put("status", String.valueOf(result.getSendStatus()));
        answer.put("queue", result.getMessageQueue().getQueueId());
        answer.put("offset", result.getQueueOffset());
        answer.put("offsetId", result.getOffsetMsgId());
        answer.put("uniqueId", result.getMsgId());
        try {
            answer.put("handle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        } catch (NoSuchMethodException older) {
            answer.put("handle", null);
        }
        return answer;
    }

    private static Map<String, Object> delayed(JSONObject arguments) throws Exception {
        String key = arguments.getString("key");
        byte[] body = key.getBytes(StandardCharsets.UTF_8);
        Message message = new Message(arguments.getString("topic"), "A", key, body);
        prepare(message, arguments);
        return told(producer(arguments).send(message));
    }

    private static Map<String, Object> recall(JSONObject arguments) throws Exception {
        Map<String, Object> answer = Peer.done();
        try {
            answer.put("uniqueId", DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer(arguments), arguments.getString("topic"), arguments.getString("handle")));
        } catch (java.lang.reflect.InvocationTargetException refused) {
            answer.put("refused", String.valueOf(refused.getCause().getMessage()));
        }
        return answer;
    }
}

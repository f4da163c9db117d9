package peer;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** respond, unrespond, request: messages that are answered by a message (RPC). */
public final class Requesting {
    private static final Map<String, Runnable> RESPONDERS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();

    private Requesting() {
    }

    public static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("respond", Requesting::respond);
        ops.put("unrespond", arguments -> {
            RESPONDERS.remove(arguments.getString("handle")).run();
            return Peer.done();
        });
        ops.put("request", Requesting::request);
        return ops;
    }

    private static DefaultMQProducer producer(String namesrv, String name) throws Exception {
        DefaultMQProducer producer = Patience.with(new DefaultMQProducer(name));
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(name + "-" + System.nanoTime());
        producer.setSendMsgTimeout(Patience.MILLIS);
        // The first heartbeat of a 5.3.3 client may come to nothing; a reply needs one at the broker.
        producer.setHeartbeatBrokerInterval(1000);
        producer.start();
        return producer;
    }

    /** Answers every message of a topic with "re:" and its body; a body that begins with "silent" with nothing. */
    private static Map<String, Object> respond(JSONObject arguments) throws Exception {
        String handle = arguments.getString("handle");
        DefaultMQProducer replies = producer(arguments.getString("namesrv"), "responding");
        DefaultMQPushConsumer consumer = Patience.with(new DefaultMQPushConsumer(arguments.getString("group")));
        consumer.setNamesrvAddr(arguments.getString("namesrv"));
        consumer.setInstanceName(handle);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String text = new String(message.getBody(), StandardCharsets.UTF_8);
                if (!text.startsWith("silent")) {
                    try {
                        byte[] body = ("re:" + text).getBytes(StandardCharsets.UTF_8);
                        replies.send(MessageUtil.createReplyMessage(message, body));
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        RESPONDERS.put(handle, () -> {
            consumer.shutdown();
            replies.shutdown();
        });
        return Peer.done();
    }

    private static Map<String, Object> request(JSONObject arguments) throws Exception {
        String namesrv = arguments.getString("namesrv");
        DefaultMQProducer producer = PRODUCERS.get(namesrv);
        if (producer == null) {
            producer = producer(namesrv, "requesting");
            PRODUCERS.put(namesrv, producer);
        }
        String key = arguments.getString("key");
        byte[] body = key.getBytes(StandardCharsets.UTF_8);
        // Not the call that returns the reply: in 5.3.1 and later it gives up as soon as the request is sent (issue 9292).
        CompletableFuture<Message> replied = new CompletableFuture<>();
        producer.request(new Message(arguments.getString("topic"), "A", key, body), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) { // null: no more than sent
                    replied.complete(reply);
                }
            }

            @Override
            public void onException(Throwable error) {
                replied.completeExceptionally(error);
            }
        }, (long) (arguments.getDoubleValue("timeout") * 1000));
        Map<String, Object> answer = Peer.done();
        try {
            answer.put("reply", new String(replied.get(2 * Patience.MILLIS, TimeUnit.MILLISECONDS).getBody(), StandardCharsets.UTF_8));
        } catch (ExecutionException late) {
            answer.put("timeout", String.valueOf(late.getCause().getMessage()));
        }
        return answer;
    }
}

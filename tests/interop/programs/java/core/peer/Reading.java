package peer;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** pull, kept, querykey, queryid. */
@SuppressWarnings("deprecation")
final class Reading {
    private Reading() {
    }

    static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("pull", Reading::pull);
        ops.put("kept", Reading::kept);
        ops.put("querykey", Reading::queryKey);
        ops.put("queryid", Reading::queryId);
        return ops;
    }

    private static Map<String, Object> pull(JSONObject arguments) throws Exception {
        DefaultMQPullConsumer consumer = Patience.with(new DefaultMQPullConsumer(arguments.getString("group"), Account.hook()));
        consumer.setConsumerPullTimeoutMillis(Patience.MILLIS);
        consumer.setNamesrvAddr(arguments.getString("namesrv"));
        consumer.setInstanceName("pull-" + System.nanoTime());
        consumer.start();
        List<Object[]> rows = new ArrayList<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(arguments.getString("topic"))) {
                long end = consumer.maxOffset(queue);
                long at = consumer.minOffset(queue);
                while (at < end) {
                    PullResult result = consumer.pull(queue, "*", at, 32);
                    if (result.getMsgFoundList() != null) {
                        for (MessageExt message : result.getMsgFoundList()) {
                            rows.add(Messages.row(message));
                        }
                    }
                    if (result.getNextBeginOffset() <= at) {
                        throw new IllegalStateException("pull at " + at + " of " + queue + " stays there: " + result);
                    }
                    at = result.getNextBeginOffset();
                    consumer.updateConsumeOffset(queue, at);
                }
            }
        } finally {
            Closing.later(consumer::shutdown);
        }
        return Peer.rows(rows);
    }

    private static Map<String, Object> kept(JSONObject arguments) throws Exception {
        DefaultMQPullConsumer consumer = Patience.with(new DefaultMQPullConsumer(arguments.getString("group"), Account.hook()));
        consumer.setNamesrvAddr(arguments.getString("namesrv"));
        consumer.setInstanceName("kept-" + System.nanoTime());
        consumer.start();
        List<Long> offsets = new ArrayList<>();
        try {
            List<MessageQueue> queues = new ArrayList<>(
                consumer.fetchSubscribeMessageQueues(arguments.getString("topic")));
            queues.sort(null);
            for (MessageQueue queue : queues) {
                offsets.add(consumer.fetchConsumeOffset(queue, true));
            }
        } finally {
            Closing.later(consumer::shutdown);
        }
        Map<String, Object> answer = Peer.done();
        answer.put("offsets", offsets);
        return answer;
    }

    /** Any client can query; a producer is the smallest one. */
    private interface Query {
        List<MessageExt> run(DefaultMQProducer producer, String what) throws Exception;
    }

    private static Map<String, Object> query(JSONObject arguments, String list, Query query) throws Exception {
        DefaultMQProducer producer = Patience.with(new DefaultMQProducer("query-" + System.nanoTime(), Account.hook()));
        producer.setNamesrvAddr(arguments.getString("namesrv"));
        producer.setInstanceName(producer.getProducerGroup());
        producer.start();
        List<Object[]> rows = new ArrayList<>();
        try {
            for (Object what : arguments.getJSONArray(list)) {
                for (MessageExt message : found(query, producer, (String) what)) {
                    rows.add(Messages.row(message));
                }
            }
        } finally {
            Closing.later(producer::shutdown);
        }
        return Peer.rows(rows);
    }

    /** What is there; a message that is not in the index yet is not there. */
    private static List<MessageExt> found(Query query, DefaultMQProducer producer, String what) throws Exception {
        try {
            List<MessageExt> found = new ArrayList<>(query.run(producer, what));
            found.removeIf(Objects::isNull);
            return found;
        } catch (MQClientException none) {
            if (none.getResponseCode() == 17 || none.getMessage().contains("no message")) {
                return new ArrayList<>();
            }
            throw none;
        }
    }

    private static Map<String, Object> queryKey(JSONObject arguments) throws Exception {
        String topic = arguments.getString("topic");
        return query(arguments, "keys", (producer, key) -> {
            QueryResult result = producer.queryMessage(topic, key, 32, 0, System.currentTimeMillis() + 60_000);
            return result.getMessageList();
        });
    }

    private static Map<String, Object> queryId(JSONObject arguments) throws Exception {
        String topic = arguments.getString("topic");
        return query(arguments, "ids", (producer, id) -> Arrays.asList(producer.viewMessage(topic, id)));
    }
}

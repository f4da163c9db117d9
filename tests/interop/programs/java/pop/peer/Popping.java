package peer;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A 5.x push consumer that lets the broker divide the queues and pops: requests in, answers out, as Peer does it. */
public final class Popping {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, List<Object[]>> ARRIVALS = new ConcurrentHashMap<>();

    private Popping() {
    }

    private static Map<String, Object> topic(JSONObject arguments) throws Exception {
        DefaultMQAdminExt admin = Patience.with(new DefaultMQAdminExt(Patience.MILLIS));
        admin.setInstanceName("admin" + System.nanoTime());
        admin.setNamesrvAddr(arguments.getString("namesrv"));
        admin.start();
        try {
            String topic = arguments.getString("topic");
            int queues = arguments.getIntValue("queues");
            for (Object broker : arguments.getJSONArray("brokers")) {
                admin.createAndUpdateTopicConfig(broker.toString(), new TopicConfig(topic, queues, queues, 6));
                admin.setMessageRequestMode(broker.toString(), topic, arguments.getString("group"),
                    MessageRequestMode.valueOf(arguments.getString("mode")), arguments.getIntValue("share"), 5000);
            }
        } finally {
            admin.shutdown();
        }
        return new LinkedHashMap<>();
    }

    private static Map<String, Object> produce(JSONObject arguments) throws Exception {
        DefaultMQProducer producer = Patience.with(new DefaultMQProducer("p" + System.nanoTime()));
        producer.setInstanceName("producer" + System.nanoTime());
        producer.setNamesrvAddr(arguments.getString("namesrv"));
        producer.setSendMsgTimeout(Patience.MILLIS); // one that is sent again is one too many
        producer.start();
        try {
            int first = arguments.getIntValue("first");
            for (int i = first; i < first + arguments.getIntValue("count"); i++) {
                Message message = new Message(arguments.getString("topic"), i % 2 == 0 ? "even" : "odd",
                    String.valueOf(i), ("body " + i).getBytes(StandardCharsets.UTF_8));
                message.putUserProperty("number", String.valueOf(i));
                producer.send(message);
            }
        } finally {
            producer.shutdown();
        }
        return new LinkedHashMap<>();
    }

    private static Map<String, Object> subscribe(JSONObject arguments) throws Exception {
        String handle = arguments.getString("handle");
        DefaultMQPushConsumer consumer = Patience.with(
            new DefaultMQPushConsumer(arguments.getString("group")));
        consumer.setInstanceName(handle);
        consumer.setNamesrvAddr(arguments.getString("namesrv"));
        consumer.setClientRebalance(false);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPopInvisibleTime(arguments.getLongValue("invisible"));
        String sql = arguments.getString("sql");
        if (sql != null) {
            consumer.subscribe(arguments.getString("topic"), MessageSelector.bySql(sql));
        } else {
            consumer.subscribe(arguments.getString("topic"), arguments.getString("expression"));
        }
        int every = arguments.getIntValue("failEvery");
        long pause = arguments.getLongValue("pause");
        List<Object[]> arrivals = new ArrayList<>();
        ARRIVALS.put(handle, arrivals);
        History history = arguments.containsKey("history")
            ? new History(arguments.getString("history"), handle) : null;
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (history != null) {
                String broker = context.getMessageQueue().getBrokerName();
                history.note("given", broker, messages);
                History.work(pause);
                history.note("done", broker, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            boolean failed = false;
            for (MessageExt message : messages) {
                synchronized (arrivals) {
                    arrivals.add(new Object[] {message.getKeys(), message.getReconsumeTimes(), message.getTopic(),
                        message.getProperty("POP_CK")});
                }
                failed |= every > 0 && Integer.parseInt(message.getKeys()) % every == 0
                    && message.getReconsumeTimes() == 0;
            }
            if (pause > 0) {
                try {
                    Thread.sleep(pause);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            }
            return failed ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        CONSUMERS.put(handle, consumer);
        return new LinkedHashMap<>();
    }

    private static Map<String, Object> received(JSONObject arguments) {
        Map<String, Object> answer = new LinkedHashMap<>();
        List<Object[]> arrivals = ARRIVALS.get(arguments.getString("handle"));
        synchronized (arrivals) {
            answer.put("rows", new ArrayList<>(arrivals));
        }
        return answer;
    }

    private static Map<String, Object> unsubscribe(JSONObject arguments) {
        CONSUMERS.remove(arguments.getString("handle")).shutdown();
        return new LinkedHashMap<>();
    }

    private static Map<String, Object> run(JSONObject request) throws Exception {
        switch (request.getString("op")) {
            case "topic":
                return topic(request);
            case "produce":
                return produce(request);
            case "subscribe":
                return subscribe(request);
            case "received":
                return received(request);
            case "unsubscribe":
                return unsubscribe(request);
            default:
                throw new IllegalArgumentException("no such call: " + request.getString("op"));
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject request = JSON.parseObject(line);
            Map<String, Object> answer;
            try {
                answer = run(request);
            } catch (Throwable error) {
                error.printStackTrace();
                answer = new LinkedHashMap<>();
                answer.put("error", error.toString());
            }
            answer.put("id", request.get("id"));
            answers.println(JSON.toJSONString(answer));
            answers.flush();
        }
        System.exit(0);
    }
}

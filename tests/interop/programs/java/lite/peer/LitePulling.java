package peer;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** litepull: the pull consumer of 4.6 and later, which shares queues in a group. */
public final class LitePulling {
    private LitePulling() {
    }

    public static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("litepull", LitePulling::litePull);
        return ops;
    }

    private static Map<String, Object> litePull(JSONObject arguments) throws Exception {
        DefaultLitePullConsumer consumer = Patience.with(new DefaultLitePullConsumer(arguments.getString("group")));
        consumer.setNamesrvAddr(arguments.getString("namesrv"));
        consumer.setInstanceName("litepull-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.subscribe(arguments.getString("topic"), "*");
        consumer.start();
        List<Object[]> rows = new ArrayList<>();
        long end = System.nanoTime() + (long) (arguments.getDoubleValue("timeout") * 1e9);
        try {
            while (rows.size() < arguments.getIntValue("count") && System.nanoTime() < end) {
                for (MessageExt message : consumer.poll(200)) {
                    rows.add(Messages.row(message));
                }
            }
        } finally {
            Closing.later(consumer::shutdown);
        }
        return Peer.rows(rows);
    }
}

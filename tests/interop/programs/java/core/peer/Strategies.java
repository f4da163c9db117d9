package peer;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** How the members of a group share queues, by name. */
final class Strategies {
    private Strategies() {
    }

    /** Rooms stand before the @ of a broker's name, and before the - of a member's instance name. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[1].split("-")[0];
        }
    }

    static AllocateMessageQueueStrategy of(JSONObject arguments) {
        String name = arguments.containsKey("strategy") ? arguments.getString("strategy") : "AVG";
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            case "MACHINE_ROOM": {
                AllocateMessageQueueByMachineRoom strategy = new AllocateMessageQueueByMachineRoom();
                strategy.setConsumeridcs(new HashSet<>(arguments.getJSONArray("rooms").toJavaList(String.class)));
                return strategy;
            }
            case "CONFIG": {
                AllocateMessageQueueByConfig strategy = new AllocateMessageQueueByConfig();
                List<MessageQueue> queues = new ArrayList<>();
                for (Object each : arguments.getJSONArray("queues")) {
                    JSONArray queue = (JSONArray) each;
                    queues.add(new MessageQueue(
                        arguments.getString("topic"), queue.getString(0), queue.getIntValue(1)));
                }
                strategy.setMessageQueueList(queues);
                return strategy;
            }
            default:
                throw new IllegalArgumentException("the client has no such strategy: " + name);
        }
    }
}

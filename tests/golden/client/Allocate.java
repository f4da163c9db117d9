import java.util.*;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.common.message.MessageQueue;

/** Writes what the published strategies give each member of a group; how to run it is in README.md beside this file. */
public class Allocate {
    static String room(String text, String mark) {
        return text.split(mark)[0];
    }

    static final AllocateMachineRoomNearby.MachineRoomResolver ROOMS = new AllocateMachineRoomNearby.MachineRoomResolver() {
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getBrokerName(), "@");
        }

        public String consumerDeployIn(String clientId) {
            return room(clientId, "-");
        }
    };

    static AllocateMessageQueueStrategy machineRoom(String... rooms) {
        AllocateMessageQueueByMachineRoom made = new AllocateMessageQueueByMachineRoom();
        made.setConsumeridcs(new HashSet<>(Arrays.asList(rooms)));
        return made;
    }

    static AllocateMessageQueueStrategy config(MessageQueue... queues) {
        AllocateMessageQueueByConfig made = new AllocateMessageQueueByConfig();
        made.setMessageQueueList(Arrays.asList(queues));
        return made;
    }

    public static void main(String[] args) {
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("averagely", new AllocateMessageQueueAveragely());
        strategies.put("by circle", new AllocateMessageQueueAveragelyByCircle());
        strategies.put("by config", config(new MessageQueue("T", "r1@a", 1), new MessageQueue("T", "r9@z", 7)));
        strategies.put("machine room", machineRoom("r1", "r3"));
        strategies.put("consistent hash", new AllocateMessageQueueConsistentHash());
        strategies.put("consistent hash, 3 nodes", new AllocateMessageQueueConsistentHash(3));
        strategies.put("nearby", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), ROOMS));
        strategies.put("nearby, by circle",
            new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), ROOMS));
        String[][] brokers = {{"r1@a"}, {"r1@a", "r2@b"}, {"r1@a", "r1@b", "r2@c", "r3@d"}, {"plain", "r1@a@b", "r3@é"}};
        String[][] clients = {{"r1-10.0.0.1@1"}, {"r1-10.0.0.1@1", "r1-10.0.0.2@1", "r2-10.0.0.3@1"},
            {"r1-a@1#2", "r2-b@1", "r2-c@1@unit", "r4-d@1", "r5-e@1"}};
        for (Map.Entry<String, AllocateMessageQueueStrategy> one : strategies.entrySet())
            for (String[] names : brokers)
                for (int each : new int[] {1, 4, 7})
                    for (String[] members : clients) {
                        List<MessageQueue> queues = new ArrayList<>();
                        for (String name : names)
                            for (int id = 0; id < each; id++)
                                queues.add(new MessageQueue("T", name, id));
                        Collections.sort(queues);
                        List<String> ids = Arrays.asList(members);
                        StringBuilder line = new StringBuilder();
                        for (String id : ids) {
                            line.append(line.length() == 0 ? "" : ",").append("[");
                            String mark = "";
                            for (MessageQueue queue : one.getValue().allocate("g", id, queues, ids)) {
                                line.append(mark).append("[\"").append(queue.getBrokerName()).append("\",")
                                    .append(queue.getQueueId()).append("]");
                                mark = ",";
                            }
                            line.append("]");
                        }
                        System.out.println("{\"strategy\":\"" + one.getKey() + "\",\"name\":\"" + one.getValue().getName()
                            + "\",\"brokers\":[\"" + String.join("\",\"", names) + "\"],\"each\":" + each
                            + ",\"clients\":[\"" + String.join("\",\"", members) + "\"],\"shares\":[" + line + "]}");
                    }
    }
}

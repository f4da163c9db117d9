import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.protocol.NamespaceUtil;

/** Writes how the published client names things in a namespace; how to run it is in README.md beside this file. */
public class Names {
    static String text(String s) {
        return s == null ? "null" : "\"" + s + "\"";
    }

    public static void main(String[] args) {
        String[] resources = {"T", "NS%T", "OTHER%T", "%RETRY%G", "%RETRY%NS%G", "%DLQ%G", "%DLQ%NS%G", "%RETRY%", "T%U",
            "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_anything", "CID_RMQ_SYS_TRANS",
            "BenchmarkTest", "DefaultCluster", "DEFAULT_CONSUMER", "TOOLS_CONSUMER", "OFFSET_MOVED_EVENT", "NS", "NS%",
            "%RETRY%TBW102", "NST", "NS2%T", "%RETRY%OTHER%G", "RMQ_SYS_TRACE_TOPIC", "SELF_TEST_TOPIC"};
        for (String namespace : new String[] {"NS", "MQ_INST_1_a", ""})
            for (String one : resources)
                System.out.println("{\"namespace\":" + text(namespace) + ",\"resource\":" + text(one) + ",\"wrapped\":"
                    + text(NamespaceUtil.wrapNamespace(namespace, one)) + ",\"plain\":"
                    + text(NamespaceUtil.withoutNamespace(one, namespace)) + "}");
        String[] addresses = {"MQ_INST_1234_abc.mq.example.com:9876", "http://MQ_INST_1234_abc.mq.example.com:80",
            "https://MQ_INST_1_a.b.c:9876", "10.0.0.1:9876", "MQ_INST_.x:1", "MQ_INST_a_b_c.x:1", "MQ_INST_1_a:9876",
            "mq_inst_1_a.b:9876", "a.MQ_INST_1_a.b:9876", "10.0.0.1:9876;MQ_INST_1_a.b:9876",
            "MQ_INST_1_a.b:9876;MQ_INST_2_b.c:9876", "MQ_INST_1-2_a.b:9876", "MQ_INST_1_.b:9876", "http://host:9876"};
        for (String one : addresses) {
            ClientConfig config = new ClientConfig();
            config.setNamesrvAddr(one);
            String found;
            try {
                found = text(config.getNamespace());
            } catch (RuntimeException e) {
                found = "\"raises\"";
            }
            System.out.println("{\"address\":" + text(one) + ",\"namespace\":" + found + "}");
        }
    }
}

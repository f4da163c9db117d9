package peer;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** topic, group, mqadmin: the administration of Apache's own tools. */
public final class Administering {
    private static final Map<String, DefaultMQAdminExt> ADMINS = new LinkedHashMap<>();

    private Administering() {
    }

    public static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("topic", Administering::topic);
        ops.put("route", Administering::route);
        ops.put("group", Administering::group);
        ops.put("mqadmin", Administering::mqadmin);
        return ops;
    }

    private static DefaultMQAdminExt admin(JSONObject arguments) throws Exception {
        String namesrv = arguments.getString("namesrv");
        DefaultMQAdminExt admin = ADMINS.get(namesrv);
        if (admin == null) {
            admin = Patience.with(new DefaultMQAdminExt(Account.hook(), Patience.MILLIS));
            admin.setAdminExtGroup("admin-" + ADMINS.size());
            admin.setNamesrvAddr(namesrv);
            admin.setInstanceName("admin-" + System.nanoTime());
            admin.start();
            ADMINS.put(namesrv, admin);
        }
        return admin;
    }

    /** The masters that are registered; a broker that has just said that it serves may be about to be. */
    private static List<String> masters(DefaultMQAdminExt admin) throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        List<String> masters = new ArrayList<>();
        while (masters.isEmpty()) {
            for (var broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                masters.add(broker.getBrokerAddrs().get(0L));
            }
            if (masters.isEmpty() && System.nanoTime() > end) {
                throw new IllegalStateException("the nameserver knows no broker");
            }
            Thread.sleep(masters.isEmpty() ? 100 : 0);
        }
        return masters;
    }

    private static Map<String, Object> topic(JSONObject arguments) throws Exception {
        DefaultMQAdminExt admin = admin(arguments);
        String name = arguments.getString("topic");
        int queues = arguments.getIntValue("queues");
        List<String> masters = masters(admin);
        for (String master : masters) {
            admin.createAndUpdateTopicConfig(master, new TopicConfig(name, queues, queues, 6));
        }
        awaitRoute(admin, name, masters.size());
        return Peer.done();
    }

    private static Map<String, Object> route(JSONObject arguments) throws Exception {
        awaitRoute(admin(arguments), arguments.getString("topic"), 1);
        return Peer.done();
    }

    private static void awaitRoute(DefaultMQAdminExt admin, String topic, int brokers) throws Exception {
        long end = System.nanoTime() + 120_000_000_000L;
        while (true) {
            try {
                if (admin.examineTopicRouteInfo(topic).getQueueDatas().size() >= brokers) {
                    return;
                }
            } catch (MQClientException unknown) {
                if (System.nanoTime() > end) {
                    throw unknown;
                }
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("topic " + topic + " did not reach the nameserver from every broker");
            }
            Thread.sleep(20);
        }
    }

    /** The configuration's class moved to another package in 5.x. */
    private static Map<String, Object> group(JSONObject arguments) throws Exception {
        DefaultMQAdminExt admin = admin(arguments);
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (!method.getName().equals("createAndUpdateSubscriptionGroupConfig")) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[1];
            for (String master : masters(admin)) {
                Object config = type.getConstructor().newInstance();
                type.getMethod("setGroupName", String.class).invoke(config, arguments.getString("group"));
                type.getMethod("setRetryMaxTimes", int.class).invoke(config, arguments.getIntValue("retries"));
                method.invoke(admin, master, config);
            }
        }
        return Peer.done();
    }

    private static Map<String, Object> mqadmin(JSONObject arguments) throws Exception {
        File conf = new File(System.getProperty("user.home"), "conf");
        conf.mkdirs();
        Files.write(new File(conf, "logback_tools.xml").toPath(), "<configuration/>".getBytes(StandardCharsets.UTF_8));
        System.setProperty("rocketmq.home.dir", conf.getParent());
        System.setProperty("rocketmq.namesrv.addr", arguments.getString("namesrv"));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, "UTF-8");
        PrintStream out = System.out;
        PrintStream err = System.err;
        forgetCommands();
        System.setOut(capture);
        System.setErr(capture);
        Thread hurry = hurry(Thread.currentThread());
        try {
            MQAdminStartup.main0(arguments.getJSONArray("args").toArray(new String[0]), Account.hook());
        } finally {
            hurry.interrupt();
            hurry.join();
            System.setOut(out);
            System.setErr(err);
        }
        Map<String, Object> answer = Peer.done();
        answer.put("output", printed.toString("UTF-8"));
        return answer;
    }

    /** The client of 5.3.3 ends once a thread of it has waited for events in vain, for three seconds: that one is woken. */
    private static Thread hurry(Thread asking) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    Thread.sleep(30);
                    boolean ends = false;
                    for (StackTraceElement frame : asking.getStackTrace()) {
                        ends |= frame.getMethodName().equals("shutdown") && frame.getClassName().endsWith("NettyRemotingClient");
                    }
                    for (Thread other : ends ? Thread.getAllStackTraces().keySet() : Set.<Thread>of()) {
                        if (other.getName().startsWith("NettyEventExecutor")) {
                            other.interrupt();
                        }
                    }
                }
            } catch (InterruptedException done) {
                return;
            }
        }, "hurry");
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** A command of an earlier call keeps the client that it has shut down. */
    @SuppressWarnings("unchecked")
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<SubCommand>) field.get(null)).clear();
            }
        }
    }
}

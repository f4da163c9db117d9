import java.lang.reflect.*;
import java.util.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.producer.*;

/** Writes the settings of the published clients with their defaults; how to run it is in README.md beside this file. */
public class Settings {
    static void show(String kind, Object client) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        for (Class<?> c = client.getClass(); c != Object.class; c = c.getSuperclass())
            for (Method getter : c.getDeclaredMethods()) {
                String name = getter.getName().replaceFirst("^(get|is)", "");
                boolean plain = getter.getParameterCount() == 0 && Modifier.isPublic(getter.getModifiers())
                    && !Modifier.isStatic(getter.getModifiers()) && !name.equals(getter.getName());
                if (!plain || Arrays.stream(client.getClass().getMethods()).noneMatch(m -> m.getName().equals("set" + name)))
                    continue;
                Object value;
                try {
                    value = getter.invoke(client);
                } catch (InvocationTargetException notStarted) {
                    continue;
                }
                if (name.equals("ConsumeTimestamp") || name.equals("ClientIP"))
                    value = null; // of the moment, and of the machine
                boolean simple = value == null || value instanceof Number || value instanceof Boolean
                    || value instanceof String || value instanceof Enum;
                found.putIfAbsent(name, simple ? String.valueOf(value) : value.getClass().getSimpleName());
            }
        for (Map.Entry<String, String> one : found.entrySet())
            System.out.println(kind + " " + one.getKey().substring(0, 1).toLowerCase() + one.getKey().substring(1) + " "
                + one.getValue());
    }

    public static void main(String[] args) throws Exception {
        show("producer", new DefaultMQProducer("g"));
        show("transaction", new TransactionMQProducer("g"));
        show("push", new DefaultMQPushConsumer("g"));
        show("pull", new DefaultMQPullConsumer("g"));
        show("lite", new DefaultLitePullConsumer("g"));
        System.exit(0);
    }
}

import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** What load.py does, with Java's client: Load KIND NAMESRV COUNT. One line of JSON on standard output. */
public final class Load {
    private static final String TOPIC = "BenchmarkClient";
    private static final byte[] BODY = new byte[1024];
    private static final int WARM = 20_000;

    private final String namesrv;
    private final int count;

    private Load(String namesrv, int count) {
        this.namesrv = namesrv;
        this.count = count;
    }

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        try {
            new Load(arguments[1], Integer.parseInt(arguments[2])).run(arguments[0]);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private void run(String kind) throws Exception {
        switch (kind) {
            case "async":
                async(256);
                break;
            case "threads":
                threads(64);
                break;
            case "one":
                threads(1);
                break;
            case "push":
                push(false);
                break;
            case "pop":
                push(true);
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private static void tell(long began, long cpu, long[] latencies, int count) {
        long took = System.nanoTime() - began;
        long used = cpu() - cpu;
        StringBuilder told = new StringBuilder();
        told.append("{\"count\":").append(count).append(",\"cpu_us\":").append(used / 1e3 / count);
        told.append(",\"per_second\":").append(count * 1e9 / took);
        if (latencies != null) {
            Arrays.sort(latencies);
            told.append(",\"p50_us\":").append(latencies[latencies.length / 2] / 1e3);
            told.append(",\"p99_us\":").append(latencies[(int) (latencies.length * 99L / 100)] / 1e3);
        }
        System.out.println(told.append('}'));
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("benchmark");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        producer.send(new Message(TOPIC, BODY));
        return producer;
    }

    private void async(int width) throws Exception {
        DefaultMQProducer producer = producer();
        gathered(producer, WARM, width, new long[WARM]);
        long[] latencies = new long[count];
        long cpu = cpu();
        long began = System.nanoTime();
        gathered(producer, count, width, latencies);
        tell(began, cpu, latencies, count);
    }

    private static void gathered(DefaultMQProducer producer, int times, int width, long[] latencies) throws Exception {
        Semaphore places = new Semaphore(width);
        AtomicInteger failed = new AtomicInteger();
        for (int i = 0; i < times; i++) {
            places.acquire();
            int number = i;
            long began = System.nanoTime();
            producer.send(new Message(TOPIC, BODY), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    latencies[number] = System.nanoTime() - began;
                    places.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    places.release();
                }
            });
        }
        places.acquire(width);
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " sends failed");
        }
    }

    private void threads(int width) throws Exception {
        DefaultMQProducer producer = producer();
        blocking(producer, WARM, width, new long[WARM]);
        int times = count / width * width;
        long[] latencies = new long[times];
        long cpu = cpu();
        long began = System.nanoTime();
        blocking(producer, times, width, latencies);
        tell(began, cpu, latencies, times);
    }

    private static void blocking(DefaultMQProducer producer, int times, int width, long[] latencies) throws Exception {
        Thread[] workers = new Thread[width];
        int each = times / width;
        for (int i = 0; i < width; i++) {
            int first = i * each;
            workers[i] = new Thread(() -> {
                try {
                    for (int number = first; number < first + each; number++) {
                        long began = System.nanoTime();
                        producer.send(new Message(TOPIC, BODY));
                        latencies[number] = System.nanoTime() - began;
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            workers[i].start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
    }

    private void push(boolean pops) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(System.getenv("BENCHMARK_GROUP"));
        consumer.setNamesrvAddr(namesrv);
        if (pops) { // the class of 4.9 has no such method
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        AtomicInteger got = new AtomicInteger();
        AtomicLong cpu = new AtomicLong();
        AtomicLong began = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            int now = got.addAndGet(messages.size());
            if (now == WARM) {
                cpu.set(cpu());
                began.set(System.nanoTime());
            } else if (now == WARM + count) {
                tell(began.get(), cpu.get(), null, count);
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
    }
}

package peer;

/** Shuts producers and readers down beside the requests: a 5.x client waits up to three seconds for its own threads. */
public final class Closing {
    private Closing() {
    }

    public static void later(Runnable shutdown) {
        after(3, shutdown);
    }

    public static void after(int seconds, Runnable shutdown) {
        Thread thread = new Thread(() -> {
            try {
                Thread.sleep(seconds * 1_000L);
            } catch (InterruptedException ended) {
                return;
            }
            shutdown.run();
        }, "closing");
        thread.setDaemon(true);
        thread.start();
    }
}

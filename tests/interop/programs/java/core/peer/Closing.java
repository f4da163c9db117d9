package peer;

/** Shuts producers and readers down beside the requests: a 5.x client waits up to three seconds for its own threads. */
public final class Closing {
    private Closing() {
    }

    public static void later(Runnable shutdown) {
        Thread thread = new Thread(() -> {
            try {
                Thread.sleep(3_000); // a one-way send has only been queued for the socket when it returns
            } catch (InterruptedException ended) {
                return;
            }
            shutdown.run();
        }, "closing");
        thread.setDaemon(true);
        thread.start();
    }
}

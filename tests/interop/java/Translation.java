/** What a scenario may ask of the translation between A2A 1.0 and the draft that this SDK speaks. */
class Translation {
    /** The version to say, or null to say what the SDK says. */
    volatile String version = "1.0";
    /** What to do when a stream has ended in order, which the SDK does not say over gRPC. */
    volatile Runnable ended = () -> {};
    /** Whether the SDK has said so. */
    volatile boolean saidSo;
}

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What this SDK itself does wrong, as told in the README beside. A scenario that has to work around
 * such a fault says so here; one that is mended fails, so that its workaround goes.
 */
final class Faults {
    private static final Set<String> MET = ConcurrentHashMap.newKeySet();

    private Faults() {}

    /** Tells that the fault was met; {@code still} is whether the SDK has it. */
    static void met(String name, boolean still) {
        Talk.check(still, "the SDK no longer has the fault " + name + ": take its workaround out");
        if (MET.add(name)) {
            System.out.println("fault " + name);
        }
    }
}

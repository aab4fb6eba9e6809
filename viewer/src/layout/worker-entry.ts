// The script of the worker.

import { serve } from "./worker";

serve(self as unknown as Parameters<typeof serve>[0]);

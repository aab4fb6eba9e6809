"""What Python calls: a model in, a result out. The stages are composed here and nowhere else."""

"""What does a measured run say? The seconds of nodes, what the device reached of its peaks, what costs more
than it should, and where the prediction is wrong (`times`)."""

"""What tests, the contracts of plug-ins, planted faults and the demo share; nothing that examines a deployment imports it."""
